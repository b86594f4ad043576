#!/bin/sh
# Restores PostgreSQL after the loss of its disk, with every acknowledged change. Stop PostgreSQL and the receiver first;
# afterwards start them, and make a new backup at once.
set -eu
moved=$(date +%Y%m%dT%H%M%S)

# The lost folder and the old log stay: remove them when all is well.
[ ! -e postgres ] || mv postgres "postgres-$moved"
cp -Rp backup/base postgres
cp -Rp backup/wal postgres/restored-wal
mv backup/wal "backup/wal-$moved"
touch postgres/recovery.signal
# The last file of the log is not full yet.
cat >> postgres/postgresql.auto.conf <<'END'
restore_command = 'cp "restored-wal/%f" "%p" || cp "restored-wal/%f.partial" "%p"'
END
[ "$(id -u)" != 0 ] || chown -R postgres: postgres
