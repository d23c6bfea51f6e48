"""libcurl by way of a proxy: classic CONNECT on HTTP/2.

curl_client.py PROXY_PORT CA CERTIFICATE KEY URL...
Prints for each address which HTTP was agreed on with the proxy, the status of its answer, how many bytes came by the tunnel and curl's
error, and `ready` last.
"""

import re
import sys

from curl_cffi import Curl, CurlError, CurlOpt

HTTPS2 = 3  # CURLPROXY_HTTPS2 of curl.h


def fetch(url):
    port, ca, certificate, key = sys.argv[1:5]
    got = bytearray()
    notes = []
    curl = Curl()
    for option, value in [
        (CurlOpt.URL, url),
        (CurlOpt.PROXY, f"https://localhost:{port}"),
        (CurlOpt.PROXYTYPE, HTTPS2),
        (CurlOpt.HTTPPROXYTUNNEL, 1),
        # Without the former the latter is overwritten.
        (CurlOpt.CAINFO, ca),
        (CurlOpt.PROXY_CAINFO, ca),
        (CurlOpt.PROXY_SSLCERT, certificate),
        (CurlOpt.PROXY_SSLKEY, key),
        (CurlOpt.NOPROXY, ""),
        (CurlOpt.TIMEOUT, 20),
        (CurlOpt.VERBOSE, 1),
        (CurlOpt.DEBUGFUNCTION, lambda kind, data: notes.append(bytes(data).decode("latin-1"))),
        (CurlOpt.WRITEFUNCTION, lambda data: got.extend(data) or len(data)),
    ]:
        curl.setopt(option, value)
    error = 0
    try:
        curl.perform()
    except CurlError as failed:
        error = failed.code
    said = "".join(notes)
    spoken = re.search(r"CONNECT: '(\w+)' negotiated", said)
    status = re.search(r"CONNECT Response Status (\d+)", said)
    print(spoken and spoken[1], status and status[1], len(got), int(error), flush=True)
    if not status:
        print(said, file=sys.stderr)
    curl.close()


for url in sys.argv[5:]:
    fetch(url)
print("ready", flush=True)
