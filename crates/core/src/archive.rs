//! The archive: of records that are gone, their keys, as hashes of twelve bytes.
//!
//! ```text
//!  step of expiry ──▶ one transaction: delete up to 1,000 records ──▶ move the horizon ──▶ add one block
//!
//!  block: the times between which its records were handled, and their hashes, sorted:  [ h₁ │ h₂ │ h₃ │ … ]
//! ```
//!
//! A record and its place in the archive change in one transaction, so that a key is always in one of them. Who handles
//! messages reads the archive only if told to: what is older than the horizon is parked, and the archive tells the operator
//! who plans what to do with it that it was handled before.
//!
//! A hash is the beginning of the SHA-256 of the stored key. Where a hundred million keys are archived, a key that is not
//! among them is taken for one of them once in 8 × 10²⁰ look-ups, and nobody can make an id that is. With eight bytes both
//! would be within reach: once in 2 × 10¹¹, and an afternoon's work.

use std::future::Future;

use sha2::{Digest, Sha256};

use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// How a block is written, kept beside it: hashes as they are described [here](self).
pub const SCHEME: i16 = 1;

/// The length of a hash.
pub const HASH_BYTES: usize = 12;

/// A block holds so many keys at most. PostgreSQL keeps it in six pieces of 1,996 bytes; two keys more would begin a seventh
/// and cost as much as a hundred and fifty.
pub const BLOCK_KEYS_MAX: usize = 998;

/// So many blocks are read at a time by whoever looks a key up: at a thousand keys each, less than a megabyte.
pub const BLOCKS_READ: usize = 64;

/// The archive on a transaction. It is written by [`expire`](crate::horizon::Consumers::expire).
pub trait Archives {
    /// For each of these keys, when a record under it was handled that is archived: among the consumer's own records or
    /// those that consumers share. Reads what is archived, in pieces.
    fn archived(
        &mut self,
        consumer: ConsumerId,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Archived>>, StoreError>> + Send;

    /// How much of a consumer is archived.
    fn archive_size(&mut self, consumer: ConsumerId) -> impl Future<Output = Result<ArchiveSize, StoreError>> + Send;

    /// Removes up to `max` blocks of a consumer whose records were all handled before `before`, and answers how many.
    fn sweep_archive(
        &mut self,
        consumer: ConsumerId,
        before: Timestamp,
        max: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// When a record was handled that is archived: between these times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Whose record it was: the consumer's own, or one that consumers share.
    pub consumer: ConsumerId,
    /// Not before.
    pub first_at: Timestamp,
    /// Not after.
    pub last_at: Timestamp,
}

/// How much is archived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveSize {
    /// How many keys.
    pub keys: u64,
    /// What their hashes take; a store needs a little more.
    pub bytes: u64,
    /// When the oldest of them was handled.
    pub oldest: Option<Timestamp>,
}

/// What stands for a key in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash([u8; HASH_BYTES]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &Key) -> Self {
        Self::of_stored(key.as_bytes())
    }

    /// The hash of a key as stores keep it.
    pub fn of_stored(key: &[u8]) -> Self {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(&Sha256::digest(key)[..HASH_BYTES]);
        Self(hash)
    }

    /// Whether it is in a block, which must be a sound one.
    pub fn is_in(&self, block: &[u8]) -> Result<bool, StoreError> {
        let (hashes, rest) = block.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() {
            let why = "a block of the archive has a broken length";
            return Err(StoreError::new(StoreErrorKind::Corrupt, "look into the archive", why));
        }
        Ok(hashes.binary_search(&self.0).is_ok())
    }
}

/// The block of these hashes: sorted, each once.
pub fn block(mut hashes: Vec<KeyHash>) -> Vec<u8> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes.into_iter().flat_map(|hash| hash.0).collect()
}

/// For those who write a store: marks the keys among `hashes` that are in this block and were not found before. Answers
/// whether all are found now.
pub fn look(
    found: &mut [Option<Archived>],
    hashes: &[KeyHash],
    block: &[u8],
    at: Archived,
) -> Result<bool, StoreError> {
    for (found, hash) in found.iter_mut().zip(hashes) {
        if found.is_none() && hash.is_in(block)? {
            *found = Some(at);
        }
    }
    Ok(found.iter().all(Option::is_some))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: usize) -> Key {
        Key::id(&format!("message {id}")).unwrap()
    }

    #[test]
    fn a_block_finds_its_keys_and_no_other() {
        let packed = block((0..1000).map(|id| KeyHash::of(&key(id))).collect());
        assert_eq!(packed.len(), 12_000);
        assert!((0..1000).all(|id| KeyHash::of(&key(id)).is_in(&packed).unwrap()));
        assert!((1000..3000).all(|id| !KeyHash::of(&key(id)).is_in(&packed).unwrap()));
        assert!(!KeyHash::of(&key(1)).is_in(&[]).unwrap());
    }

    #[test]
    fn a_key_twice_is_kept_once_and_a_broken_block_is_told() {
        let packed = block(vec![KeyHash::of(&key(1)), KeyHash::of(&key(1))]);
        assert_eq!(packed.len(), HASH_BYTES);
        let broken = KeyHash::of(&key(1)).is_in(&packed[1..]).unwrap_err();
        assert_eq!(broken.kind(), StoreErrorKind::Corrupt);
    }

    /// Stored: a change of these bytes would make every archive forget.
    #[test]
    fn the_bytes_of_a_hash_are_defined() {
        let digest = Sha256::digest(b"\x02payment 17");
        assert_eq!(KeyHash::of(&Key::id("payment 17").unwrap()).0, digest[..12]);
    }
}
