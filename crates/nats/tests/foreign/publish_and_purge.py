"""Publishes a message under an id with another's client, and empties the stream: publish_and_purge.py URL STREAM SUBJECT ID"""

import asyncio
import sys

import nats


async def main():
    url, stream, subject, message_id = sys.argv[1:]
    client = await nats.connect(url)
    context = client.jetstream()
    stored = await context.publish(subject, b"foreign", headers={"Nats-Msg-Id": message_id})
    assert not stored.duplicate
    await context.purge_stream(stream)
    await client.close()


asyncio.run(main())
