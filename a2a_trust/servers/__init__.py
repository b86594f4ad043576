"""What a server has to record of a connection, since an application cannot see it: protocol classes for uvicorn."""
