"""Publishes messages that our own client would not write, with another's: publish.py URL QUEUE WHAT…

WHAT is `plain:TEXT`, `deep:LEVELS` (arrays in each other, in a header), `name` (a header whose name is not UTF-8),
`id` (a message-id that is not UTF-8), `nested-name` (such a name in a table in a header), `routing-key` (one that is not).
"""

import struct
import sys

import pika
from pika import spec

url, queue, *kinds = sys.argv[1:]


def table(entries):
    inside = b"".join(struct.pack("B", len(name)) + name + value for name, value in entries)
    return struct.pack(">I", len(inside)) + inside


def deep(levels):
    value = b"V"
    for _ in range(levels):
        value = b"A" + struct.pack(">I", len(value)) + value
    return value


class Raw(spec.BasicProperties):
    """Properties that go out as the bytes that they are: flags and list."""

    def __init__(self, flags, encoded):
        super().__init__()
        self.raw = [struct.pack(">H", flags), encoded]

    def encode(self):
        return self.raw


HEADERS, MODE, ID = 1 << 13, 1 << 12, 1 << 7


def properties(kind):
    what, _, value = kind.partition(":")
    entries, message_id = [(b"seen", b"S" + struct.pack(">I", 3) + b"yes")], what.encode()
    if what == "deep":
        entries.append((b"deep", deep(int(value))))
        message_id = kind.encode()
    elif what == "name":
        entries.insert(0, (b"\xff\xfe", b"t\x01"))
    elif what == "nested-name":
        entries.append((b"table", b"F" + table([(b"\xff", b"V")])))
    elif what == "id":
        message_id = b"\xff\xfe"
    else:
        message_id = kind.encode()
    listed = table(entries) + b"\x02" + struct.pack("B", len(message_id)) + message_id
    return Raw(HEADERS | MODE | ID, listed)


class RawPublish(spec.Basic.Publish):
    """To an exchange, with a routing key of any bytes."""

    def encode(self):
        exchange = self.exchange.encode()
        return [struct.pack(">HB", 0, len(exchange)), exchange, b"\x03k\xff\xfe", b"\x01"]


connection = pika.BlockingConnection(pika.URLParameters(url))
channel = connection.channel()
channel.confirm_delivery()
# It brings everything to the queue, whatever the routing key.
channel.exchange_declare(queue, "fanout")
channel.queue_bind(queue, queue)
plain = spec.Basic.Publish
for kind in kinds:
    spec.Basic.Publish = RawPublish if kind == "routing-key" else plain
    exchange, key = (queue, "") if kind == "routing-key" else ("", queue)
    channel.basic_publish(exchange, key, kind.encode(), properties(kind), mandatory=True)
channel.exchange_delete(queue)
connection.close()
