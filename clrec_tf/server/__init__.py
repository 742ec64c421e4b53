"""The retrieval server: tower and index in one process, behind HTTP and gRPC."""
