#!/bin/sh
# A service: writes the log of PostgreSQL to backup/wal, byte by byte. PostgreSQL acknowledges a change after that.
set -eu
. ./settings.env
export PGPASSFILE=secrets/backup.pgpass
mkdir -p backup/wal
set -- --dbname="host=127.0.0.1 port=$DATABASE_PORT user=backup application_name=backup" --slot=backup --no-loop
pg_receivewal "$@" --create-slot --if-not-exists
exec pg_receivewal "$@" --directory=backup/wal --synchronous
