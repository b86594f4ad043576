#!/bin/sh
# Makes the tables, the rights, the API keys of two teams, and the first backup. What is there stays.
set -eu
here=$(dirname "$(realpath "$0")")
. ./settings.env
export PGPASSFILE=secrets/owner.pgpass

a2a-sign database migrate "$OWNER_DATABASE"
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --dbname="$OWNER_DATABASE" --file="$here/grants.sql"
if [ ! -e callers/keys ]; then
    printf 'search\nbilling\n' |
        a2a-sign api-key create --store "$OWNER_DATABASE" --owners-from - --scope invoices -o callers/keys
fi
[ -e backup/base ] || sh "$here/backup.sh"
