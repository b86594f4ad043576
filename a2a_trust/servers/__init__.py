"""What a server has to tell of a connection, since an application cannot see it: classes for uvicorn, and hypercorn."""
