"""Celery's consumer, with one difference: it closes what it could not use.

Celery opens a connection to the broker and then registers it with its event loop. While
Redis is a replica the second step fails, because it writes, and Celery forgets the open
connection. Nothing ever closes it: about ten sockets a second until Redis is a primary.
"""

from celery.worker.consumer import Consumer as CeleryConsumer
from kombu import Connection


class Consumer(CeleryConsumer):  # type: ignore[misc]
    def connect(self) -> Connection:
        connection = self.connection_for_read(heartbeat=self.amqheartbeat)
        try:
            if self.hub:
                connection.transport.register_with_event_loop(
                    connection.connection, self.hub
                )
        except BaseException:
            connection.close()
            raise
        return connection
