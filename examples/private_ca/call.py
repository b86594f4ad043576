"""Calls the agent beside this file, with a certificate that may be renewed while this goes on."""

from __future__ import annotations

import sys

import httpx

from a2a_trust.certificates import CertificateFiles, client_context

url = sys.argv[1] if len(sys.argv) > 1 else "https://localhost:8443/"
certificate = CertificateFiles("invoices.pem", "invoices.key", origins=["https://localhost:8443"])
with httpx.Client(verify=client_context(certificate, authorities="ca.pem")) as http:
    answer = http.get(url)
    print(answer.text, end="")
sys.exit(answer.is_error)
