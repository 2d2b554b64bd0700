"""Publishes messages that our own client would not write, with another's: publish.py URL QUEUE WHAT…

WHAT is `plain:TEXT`, `deep:LEVELS` (arrays in each other, in a header), `name` (a header whose name is not UTF-8),
`id` (a message-id that is not UTF-8), `nested-name` (such a name in a table in a header), `routing-key` (one that is not),
`large:BYTES` (a content header of that length, without its frame), `type:HEX` and `key:HEX` (a type, a routing key).
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


HEADERS, MODE, ID, TYPE = 1 << 13, 1 << 12, 1 << 7, 1 << 5
# Class, weight, body size and flags.
BEFORE_LIST = 14


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
    after = b"\x02" + struct.pack("B", len(message_id)) + message_id
    flags = HEADERS | MODE | ID
    if what == "type":
        # None of its own, so that its content alone tells it from others.
        flags, after = HEADERS | MODE | TYPE, b"\x02" + struct.pack("B", len(value) // 2) + bytes.fromhex(value)
    elif what == "key":
        flags, after = HEADERS | MODE, b"\x02"
    elif what == "large":
        entries.append((b"large", b"S" + struct.pack(">I", 0)))
        length = int(value) - BEFORE_LIST - len(table(entries)) - len(after)
        entries[-1] = (b"large", b"S" + struct.pack(">I", length) + b"x" * length)
    return Raw(flags, table(entries) + after)


class RawPublish(spec.Basic.Publish):
    """To an exchange, with a routing key of any bytes."""

    def encode(self):
        exchange = self.exchange.encode()
        key = self.raw_key
        return [struct.pack(">HB", 0, len(exchange)), exchange, struct.pack("B", len(key)) + key, b"\x01"]


connection = pika.BlockingConnection(pika.URLParameters(url))
channel = connection.channel()
channel.confirm_delivery()
# It brings everything to the queue, whatever the routing key.
channel.exchange_declare(queue, "fanout")
channel.queue_bind(queue, queue)
plain = spec.Basic.Publish
for kind in kinds:
    what, _, value = kind.partition(":")
    is_raw = what in ("routing-key", "key")
    RawPublish.raw_key = bytes.fromhex(value) if what == "key" else b"k\xff\xfe"
    spec.Basic.Publish = RawPublish if is_raw else plain
    exchange, key = (queue, "") if is_raw else ("", queue)
    # Those with a type or key of their own have nothing else of their own.
    body = what if what in ("type", "key") else kind
    channel.basic_publish(exchange, key, body.encode(), properties(kind), mandatory=True)
channel.exchange_delete(queue)
connection.close()
