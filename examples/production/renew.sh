#!/bin/sh
# The job: run it every hour, and after each change of the ring. It publishes the key set, and signs the card when it
# must: after a rotation, and 30 days before the signature expires. Replicas read card and trust file without a restart.
set -eu
umask 022
. ./settings.env

a2a-sign keys export signing/ring.json -o public/.well-known/jwks.json
a2a-sign trust add agent/trust.toml --origin "$AGENT_URL" --jwks public/.well-known/jwks.json
a2a-sign trust add callers/trust.toml --origin "$AGENT_URL" --jwks public/.well-known/jwks.json
a2a-sign agent/card.json --key signing/ring.json --expires 90d --expires-within 30d --if-needed
