#!/bin/sh
# Run it every night: a copy of PostgreSQL in backup/base. backup/wal has every change since then. The key ring, the trust
# file and the card are files: a copy is enough.
set -eu
. ./settings.env
export PGPASSFILE=secrets/backup.pgpass

rm -rf backup/base.new
pg_basebackup --dbname="host=127.0.0.1 port=$DATABASE_PORT user=backup" --pgdata=backup/base.new --checkpoint=fast
rm -rf backup/base
mv backup/base.new backup/base
# The log from before this copy is no longer needed.
pg_archivecleanup backup/wal "$(sed -n 's/^START WAL LOCATION.*(file \(.*\))$/\1/p' backup/base/backup_label)"
cp -p signing/ring.json agent/trust.toml agent/card.json backup
