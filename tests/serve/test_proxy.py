"""What the reverse proxy passes on."""

from __future__ import annotations

from a2a_trust.serve.proxy import _without_hop_by_hop


def test_connection_does_not_remove_the_version_that_the_guard_has_read() -> None:
    headers = [(b"connection", b"A2A-Version, X-Hop"), (b"a2a-version", b"1.0"), (b"x-hop", b"1")]
    assert list(_without_hop_by_hop(headers)) == [(b"a2a-version", b"1.0")]


def test_a_length_beside_transfer_encoding_is_removed() -> None:
    assert not list(_without_hop_by_hop([(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"3")]))
