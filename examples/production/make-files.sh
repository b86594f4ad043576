#!/bin/sh
# Makes every file that the servers read, in the current folder, which has ports.env. Files that are there stay.
set -eu
here=$(dirname "$(realpath "$0")")
umask 022
. ./settings.env

mkdir -p tls secrets/clients signing agent callers public/.well-known provider nginx redis backup logs stop
chmod 700 tls secrets signing callers backup
sed 's/\([A-Z_0-9]*\)=\(.*\)/s|@\1@|\2|g/' settings.env > settings.sed

# Certificates: a private authority, and one certificate for nginx and the provider.
if [ ! -e tls/localhost.pem ]; then
    (cd tls && sh "$here/../private_ca/authority.sh" new && sh "$here/../private_ca/authority.sh" server localhost localhost)
fi

# Secrets: passwords of roles, and of clients of the provider.
for name in postgres owner agent backup redis clients/reports; do
    [ -e "secrets/$name" ] || (umask 077 && openssl rand -hex 24 > "secrets/$name.new" && mv "secrets/$name.new" "secrets/$name")
done
for role in postgres owner agent backup; do
    (umask 077 && echo "127.0.0.1:$DATABASE_PORT:*:$role:$(cat "secrets/$role")" > "secrets/$role.pgpass")
done

# Settings of the servers.
sed -f settings.sed "$here/nginx.conf" > nginx.conf
metrics="\"127.0.0.1:$METRICS_1_PORT\", \"127.0.0.1:$METRICS_2_PORT\", \"127.0.0.1:$METRICS_3_PORT\""
sed -e "s|\"127.0.0.1:9464\"|$metrics|" -e "s|15s|5s|" "$here/../metrics/prometheus.yml" > prometheus.yml
cp "$here/../metrics/alerts.yml" alerts.yml
(umask 077 && sed -f settings.sed -e "s|@PASSWORD@|$(cat secrets/redis)|" "$here/redis.conf" > redis.conf)

# PostgreSQL, whose server never runs as root.
if [ ! -e postgres/PG_VERSION ]; then
    mkdir -p postgres
    (umask 077 && cp secrets/postgres postgres.password)
    as=""
    if [ "$(id -u)" = 0 ]; then
        chown postgres: postgres postgres.password
        as="setpriv --reuid=postgres --regid=postgres --init-groups"
    fi
    $as initdb --pgdata=postgres --username=postgres --auth=scram-sha-256 --pwfile=postgres.password --encoding=UTF8
    rm postgres.password
fi

# The OpenID provider.
[ -e provider/node_modules ] || {
    cp "$here"/oidc-provider-*/package*.json provider
    npm ci --prefix provider --ignore-scripts --no-audit --no-fund --silent
}
cp "$here/provider.mjs" provider

# The ring, which only the job reads, and the card.
if [ ! -e signing/ring.json ]; then
    a2a-sign keys create signing/ring.json
fi
if [ ! -e agent/card.json ]; then
    sed -f settings.sed "$here/card.json" > signing/card.json
    a2a-sign lint signing/card.json
    a2a-sign signing/card.json --key signing/ring.json --expires 90d -o agent/card.json
fi
sh "$here/renew.sh"
