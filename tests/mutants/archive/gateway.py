"""Seeded faults in the gateway: answers before the bytes are safe, limits that limit nothing, bytes nobody checks."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

STORE, UPLOADS, QUERY = "gateway/item_store.py", "gateway/uploads.py", "gateway/tag_query.py"
CUT, PRIVATE = "tests/gateway/test_durability.py -k cut_at_any_write", "tests/gateway/test_private.py"

GATEWAY: Final = [
    Mutant(
        "an upload is in the index before its bytes are stored",
        STORE,
        "        record = item.record\n",
        "        record = item.record\n        await self.add_to_index(upload, record)\n",
        CUT,
    ),
    Mutant(
        "an upload is answered before its record is durable",
        STORE,
        "        if not await self.objects.put_once(upload.key, encode(upload)):\n",
        "        task = asyncio.ensure_future(self.objects.put_once(upload.key, encode(upload)))\n"
        "        task.add_done_callback(lambda done: done.exception())\n"
        "        if task is None:\n",
        CUT,
    ),
    Mutant(
        "an object has its name before its bytes are synced",
        "adapters/objects/local_folder.py",
        "            sync_file(file)\n            return then(temp)\n",
        "            return then(temp)\n",
        "tests/adapters/objects/test_local_folder.py -k synced_before_the_name",
    ),
    Mutant(
        "what a key is uploading does not count for its quota",
        UPLOADS,
        "size + self._arriving[key.id] > most_bytes",
        "size > most_bytes",
        "tests/gateway/test_limits.py -k quota",
    ),
    Mutant(
        "a chunk is served without comparing its hash",
        STORE,
        "        if digest != record.chunks[number]:\n",
        "        if digest == b'':\n",
        "tests/gateway/test_read.py -k damaged_item",
    ),
    Mutant(
        "a repeated upload believes that the stored copy is good",
        STORE,
        "        if await self.faults_of_data(id_, item.record):\n",
        "        if await self.faults_of_data(id_, item.record) == 'missing':\n",
        "tests/gateway/test_read.py -k repairs",
    ),
    Mutant(
        "an item is stored although its signature is not its owner's",
        UPLOADS,
        "        elif not self._is_signed_by_owner(header, uploaded.data.hash):\n",
        "        elif not header.id:\n",
        "tests/gateway/test_upload.py -k wrong_signature",
    ),
    Mutant(
        "a bucket belongs to everybody",
        STORE,
        "        return owner == key_id\n",
        "        return True\n",
        f"{PRIVATE} -k first_key",
    ),
    Mutant(
        "a private item can be read without its key",
        STORE,
        "        return key_id in owners\n",
        "        return bool(owners)\n",
        f"{PRIVATE} -k does_not_exist",
    ),
    Mutant(
        "an upload that the index failed to take is forgotten",
        STORE,
        "            self.unindexed[upload.key] = upload\n",
        "            self.unindexed.pop(upload.key, None)\n",
        "tests/gateway/test_durability.py -k gets_it_later",
    ),
    Mutant(
        "two filters with one key match",
        QUERY,
        " or len({name for name, _ in pairs}) < len(pairs)",
        "",
        "tests/gateway/test_tag_query.py -k anded",
    ),
    Mutant(
        "what is acknowledged of a resumable upload is not synced",
        "gateway/resumable.py",
        "                await asyncio.to_thread(sync_data, file)\n",
        "                await asyncio.sleep(0)\n",
        "tests/gateway/test_resumable.py -k was_synced",
    ),
    Mutant(
        "a search begins with any of several common tags",
        "adapters/sqlite/item_index.py",
        "        if min(counts) < rows:\n            break\n",
        "        break\n",
        "tests/gateway/test_item_index.py -k rarest_tag",
    ),
    Mutant(
        "tags that are nested too deeply are a fault of the server",
        "gateway/agent_tags.py",
        "    except NOT_JSON:\n",
        "    except msgspec.DecodeError:\n",
        "tests/gateway/test_upload.py -k bad_forms",
    ),
    Mutant(
        "a bad field of tags is excused by a later one",
        "gateway/http/upload_form.py",
        "            raise HttpFault(error(400, tags.message))\n",
        "            return []\n",
        "tests/gateway/test_upload.py -k bad_forms",
    ),
    Mutant(
        "results that share their bytes are never taken for archived",
        "workers/archive/recorded_archive.py",
        "list({digest for digest, size in digests if size})",
        "[digest for digest, size in digests if size]",
        "tests/workers/archive/test_shared_outputs.py",
    ),
    Mutant(
        "asking whether bytes are held keeps them from being deleted",
        "adapters/warm_store.py",
        "        return digest not in self._being_deleted and await run_file_io(_RULE, self._is_held, digest)\n",
        "        return await self.size(digest) is not None\n",
        "tests/adapters/test_warm_sweep.py -k nobody_relies",
    ),
    Mutant(
        "a gateway that died stays dead",
        "app/gateway_child.py",
        "            pause_s = min(2 * pause_s, RESTART_S_MAX)\n",
        "            return\n",
        "tests/app/test_gateway_child.py -k later_and_later",
    ),
    Mutant(
        "the node's gateway listens to the whole network",
        "app/gateway_child.py",
        "replace(settings, host=LOOPBACK, ",
        "replace(settings, ",
        "tests/app/test_gateway_child.py -k own_machine",
    ),
]
