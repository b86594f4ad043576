#!/bin/sh
# A private certificate authority of five commands, in the folder where it is started (OpenSSL 3):
#
#   authority.sh new                                        ca.pem, ca.key and an empty list of revoked certificates
#   authority.sh server NAME HOST                           NAME.pem and NAME.key for a server at that host
#   authority.sh client NAME ID                             NAME.pem and NAME.key for a caller, with a SPIFFE ID
#   authority.sh revoke NAME                                NAME.pem is rejected where ca.crl is read
#   authority.sh list                                       a new ca.crl, valid for a week
#
# Whoever has ca.key makes callers: keep it where neither agents nor callers run, and encrypt it there
# (openssl pkey -aes256 -in ca.key -out ca.encrypted.key). Certificates of callers are good for a day: renew them by the
# same command, as often.
set -eu
umask 077

key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"
}

# issue NAME DAYS SUBJECT; what the certificate is for comes from standard input
issue() {
    cat > "$1.ext"
    openssl req -new -key "$1.key" -subj "$3" | openssl x509 -req -CA ca.pem -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" \
        -days "$2" -sha256 -extfile "$1.ext" -out "$1.pem"
    rm "$1.ext"
}

revocations() {
    openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key "$@"
}

case "$1" in
new)
    key ca
    openssl req -x509 -new -key ca.key -sha256 -days 3650 -subj "/CN=Agents of Example" -out ca.pem \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
    printf '%s\n' "[ca]" "default_ca = this" "[this]" "database = ca.index" "crlnumber = ca.crlnumber" \
        "default_md = sha256" "default_crl_days = 7" "unique_subject = no" > ca.cnf
    : > ca.index
    echo 01 > ca.crlnumber
    revocations -gencrl -out ca.crl
    ;;
server)
    key "$2"
    issue "$2" 30 "/CN=$3" <<EOF
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:$3
EOF
    ;;
client)
    key "$2"
    issue "$2" 1 "/CN=$2" <<EOF
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectAltName = URI:$3
EOF
    ;;
revoke)
    revocations -revoke "$2.pem"
    revocations -gencrl -out ca.crl.new
    mv ca.crl.new ca.crl
    ;;
list)
    revocations -gencrl -out ca.crl.new
    mv ca.crl.new ca.crl
    ;;
*)
    echo "authority.sh: new, server, client, revoke or list" >&2
    exit 2
    ;;
esac
