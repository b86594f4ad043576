#!/bin/sh
# Makes the roles and their database in the running PostgreSQL. If they are there, it does nothing.
set -eu
here=$(dirname "$(realpath "$0")")
. ./settings.env
# Commits wait for the receiver of backups, which cannot connect before it has a role.
export PGPASSFILE=secrets/postgres.pgpass PGOPTIONS="-c synchronous_commit=local"
psql="psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --host=127.0.0.1 --port=$DATABASE_PORT --username=postgres"

if [ "$($psql -Atc "SELECT 1 FROM pg_database WHERE datname = 'agents'")" != 1 ]; then
    $psql --file="$here/roles.sql"
fi
