//! Posts whose bodies the caller writes itself, in one function with the rest of its call: a record without chunks, a
//! closure or anything to clean up is short, and most posts are such records.

use super::client::ClientLink;
use super::codec::Writer;
use super::layout::Head;
use super::ring::Place;
use super::state::LinkError;

/// A reserved record. It must be ended ([`Post::end`]), or no later record of the session is seen: between its beginning
/// and its end stand only calls of its writer, which never panics.
#[must_use]
pub struct Post<'l> {
    link: &'l ClientLink,
    place: Place,
    head: Writer<'l>,
}

impl ClientLink {
    /// Reserves a record that has no answer and a body of `body_len` bytes (rounded up to 8), and gives what writes the
    /// body. Waits only when the ring is full.
    #[inline(always)]
    pub fn begin_post(&self, body_len: usize) -> Result<(Post<'_>, Writer<'_>), LinkError> {
        let (place, head, body) = self.begin(body_len)?;
        Ok((Post { link: self, place, head }, body))
    }
}

impl Post<'_> {
    /// Publishes the record, whose body has been written.
    ///
    /// # Errors
    /// The link is broken; or the body did not fit, and the record is as if it had never been.
    #[inline(always)]
    pub fn end(self, body: Writer<'_>, call: u16, lane: u32, context: u64) -> Result<(), LinkError> {
        let Self { link, place, head } = self;
        let length = place.record_len();
        let words = Head { length, call, chunk_up: None, chunk_down: None, lane, slot: None, context };
        link.end(place, head, body.finish(), words)?;
        link.posted()
    }
}
