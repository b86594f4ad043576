"""Facts about a connection that only its server knows: classes for uvicorn, and hypercorn."""
