"""Pages of another site, served to a browser."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serve_pages(pages: Mapping[str, str]) -> Iterator[int]:
    """The port of a server that gives each path its page.

    A path that begins with `/to/` leads, by 307, to what comes after it.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, is_redirect, target = self.path.partition("/to/")
            body = pages.get(self.path, "").encode()
            self.send_response(307 if is_redirect else 200)
            if is_redirect:
                self.send_header("Location", target)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
