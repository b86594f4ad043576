"""Files: written whole or not at all, watched for changes, who may write them, SQLite."""
