"""The retrieval service: tower and index in one process, behind HTTP and gRPC."""
