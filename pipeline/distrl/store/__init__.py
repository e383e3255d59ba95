"""Objects in S3 or in a directory: screenshots, adapters and checkpoints, named by their content."""
