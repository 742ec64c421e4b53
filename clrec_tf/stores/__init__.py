"""Object stores: local files mirror what is kept under s3://, gs:// and hdfs://, and commands see local paths alone."""
