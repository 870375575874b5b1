"""HTTP requests that two programs can read in two ways, each with a second request behind the first."""

from __future__ import annotations

SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNK = b"%x\r\n" % len(SMUGGLED) + SMUGGLED + b"\r\n0\r\n\r\n"


def ambiguous() -> dict[str, bytes]:
    """Return the requests by what is ambiguous about them."""

    def post(*headers: bytes, body: bytes = SMUGGLED, version: bytes = b"1.1", end: bytes = b"\r\n") -> bytes:
        return end.join([b"POST /webhooks/alerts HTTP/" + version, b"Host: x", *headers, b"", body])

    chunked, length = b"Transfer-Encoding: chunked", b"Content-Length: %d"
    empty = b"0\r\n\r\n" + SMUGGLED
    return {
        "length and chunked": post(length % len(empty), chunked, body=empty),
        "chunked and length": post(chunked, length % 4, body=empty),
        "two lengths": post(length % 0, length % len(SMUGGLED)),
        "the same length twice": post(length % 0, length % 0),
        "a list of lengths": post(b"Content-Length: 0, 0"),
        "a length with a sign": post(b"Content-Length: +0"),
        "a length in hexadecimal": post(b"Content-Length: 0x0"),
        "a length with an underscore": post(b"Content-Length: 0_0"),
        "chunked twice": post(chunked, chunked, body=empty),
        "an encoding that nobody knows": post(b"Transfer-Encoding: xchunked", body=empty),
        "chunked with a vertical tab": post(b"Transfer-Encoding:\x0bchunked", body=empty),
        "chunked, then identity": post(b"Transfer-Encoding: chunked, identity", body=empty),
        "chunked in HTTP/1.0": post(chunked, body=empty, version=b"1.0"),
        "a space before the colon": post(b"Content-Length : 0"),
        "a folded header": post(b"Transfer-Encoding:\r\n chunked", body=empty),
        "a folded length": post(b"X: y\r\n Content-Length: 0"),
        "bare LF between headers": post(length % 0, end=b"\n") + b"\r\n\r\n",
        "a bare LF in a header": post(b"X: y\nContent-Length: 0"),
        "a bare CR in a header": post(b"X: y\rContent-Length: 0"),
        "a null byte": post(b"X: y\x00z", length % 0),
        "no host": b"GET /livez HTTP/1.1\r\n\r\n" + SMUGGLED,
        "two hosts": b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + SMUGGLED,
        "a white space in front": b" GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
        "HTTP/0.9": b"GET /livez\r\n\r\n" + SMUGGLED,
        "a chunk size with a sign": post(chunked, body=b"+0\r\n\r\n" + SMUGGLED),
        "a chunk that ends in LF": post(chunked, body=b"1\nA\n0\n\n" + SMUGGLED),
        "a chunk that is too long": post(chunked, body=b"1\r\nAB\r\n0\r\n\r\n" + SMUGGLED),
        "a chunk extension with LF": post(chunked, body=b"0;a\nb\r\n\r\n" + SMUGGLED),
        "a length that is far too long": post(b"Content-Length: " + b"0" * 5000),
        "a body for GET": b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(CHUNK) + CHUNK,
    }
