#!/bin/sh
# Restores PostgreSQL after the loss of its disk, with every acknowledged change. Stop PostgreSQL and the receiver first;
# afterwards start them, and make a new backup at once.
set -eu
moved=$(date +%Y%m%dT%H%M%S)

# Without the log, PostgreSQL would start with the changes until the backup, and say nothing.
first=$(sed -n 's/^START WAL LOCATION.*(file \(.*\))$/\1/p' backup/base/backup_label)
if [ ! -e "backup/wal/$first" ] && [ ! -e "backup/wal/$first.partial" ]; then
    echo "backup/wal lacks $first, with which the log of backup/base begins: find it, or changes are lost" >&2
    exit 1
fi

# The lost folder and the old log stay: remove them when all is well.
[ ! -e postgres ] || mv postgres "postgres-$moved"
cp -Rp backup/base postgres
rm -rf postgres/restored-wal  # of an earlier restore
cp -Rp backup/wal postgres/restored-wal
mv backup/wal "backup/wal-$moved"
touch postgres/recovery.signal
# The last file of the log is not full yet.
cat >> postgres/postgresql.auto.conf <<'END'
restore_command = 'cp "restored-wal/%f" "%p" || cp "restored-wal/%f.partial" "%p"'
END
[ "$(id -u)" != 0 ] || chown -R postgres: postgres
