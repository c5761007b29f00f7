"""How the server reads and writes connections: uvicorn's way, with limits.

uvicorn bounds neither the bytes of headers nor the time that a client takes. Here a
connection is ended that sends too much before the app hears of it, sends too slowly, or
does not take its answer; and there are only so many of them.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.errors import AppError, HeadersTooLarge, Overloaded, problem
from app.observe import ENDLESS
from app.settings import get_settings

_CHECK_SECONDS = 1.0
_FRAME_BYTES = 8
"""What a chunk of one byte takes beside that byte, at most."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limits = get_settings()
        self._is_in_head = True  # the first one is waited for
        self._is_in_body = False
        self._n_head = self._n_received = self._n_body = 0
        self._waited = 0.0
        self._begun_at = self._received_at = self._sent_at = self.loop.time()
        self._n_unsent = 0
        self._timer = self.loop.call_later(self._pause(), self._check)
        if len(self.connections) > self._limits.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The service ends: answers under way are waited for, but for those that would
        go on for ever."""
        is_endless = self.cycle is not None and self.cycle.scope.get(ENDLESS, False)
        super().shutdown()
        if is_endless and not self.transport.is_closing():
            self.transport.close()

    def _make_room(self) -> None:
        """End a connection on which nothing is asked; if there is none, refuse."""
        for other in self.connections:
            if isinstance(other, Protocol) and other._is_idle():
                other.transport.close()
                return
        self._refuse(Overloaded("there are too many connections; try again later"))

    def _is_idle(self) -> bool:
        is_waiting = self.timeout_keep_alive_task is not None
        return is_waiting and not self.transport.is_closing()

    # What comes

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head and self._n_head > 0
        self._received_at = self.loop.time()
        if self._is_in_body:
            self._n_received += len(data)
        super().data_received(data)
        if self._is_in_head:
            # A head that begins behind another request is counted from the next piece.
            self._n_head += len(data) if was_in_head else 1
            if self._n_head > self._limits.max_header_bytes:
                self._refuse(HeadersTooLarge())
        elif self._n_received > _FRAME_BYTES * self._n_body + 2**16:
            self.transport.abort()  # trailers, or what is between chunks, without end

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._is_in_body = True, False
        self._n_head = 0
        self._begun_at = self.loop.time()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._is_in_head, self._is_in_body = False, True
        self._n_received = self._n_body = 0
        self._waited = 0.0

    def on_body(self, body: bytes) -> None:
        self._n_body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._n_received = self._n_body = 0
        super().on_message_complete()

    def _refuse(self, error: AppError) -> None:
        """Answer before there is a request that could be, and end the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer to another request is under way
            return
        status, headers, body = problem(error)
        lines = [f"HTTP/1.1 {status} {error.code}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()

    # What does not come

    def _pause(self) -> float:
        limits = self._limits
        least = min(limits.header_seconds, limits.body_seconds, limits.send_seconds)
        return min(_CHECK_SECONDS, least / 2)

    def _check(self) -> None:
        """From time to time: whether the connection still moves."""
        if self._is_stuck(self.loop.time()):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(self._pause(), self._check)

    def _is_stuck(self, now: float) -> bool:
        limits = self._limits
        n_unsent = self.transport.get_write_buffer_size()
        if n_unsent == 0 or n_unsent != self._n_unsent:
            self._n_unsent, self._sent_at = n_unsent, now
        if now - self._sent_at > limits.send_seconds:
            return True
        if self._is_in_head:
            return now - self._begun_at > limits.header_seconds
        if not self._is_in_body:
            return False
        if self.flow.read_paused:  # we are the slow ones
            self._received_at = now
            return False
        self._waited += self._pause()
        if self._waited <= limits.body_seconds:
            return False
        return (
            self.cycle.response_complete  # and still it sends
            or now - self._received_at > limits.body_seconds
            or max(self._n_received, self._n_body) < limits.min_body_rate * self._waited
        )
