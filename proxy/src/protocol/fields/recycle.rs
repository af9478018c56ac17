//! The buffers of messages: a thread recycles them, and measures how large new ones should be.

use std::cell::RefCell;

use super::Content;

/// Maximum number of buffers that a thread keeps for further messages.
const RECYCLED: usize = 64;
/// Maximum capacities of recycled buffers; larger ones are freed.
const RECYCLED_TEXT: usize = 8 * 1024;
const RECYCLED_FIELDS: usize = 128;

/// Number of messages whose growth determines the capacity of new buffers.
const WINDOW: u16 = 64;
/// Growth of a message before any was measured: the fields that a proxy with the default configuration adds to a request.
const USUAL: Growth = Growth {
    text: 184,
    fields: 5,
};
/// Maximum growth for which space is reserved.
const MOST: Growth = Growth {
    text: 512,
    fields: 32,
};

/// Maximum size of a head that is received field by field for which space is reserved.
const LARGEST_HEAD: Received = Received {
    text: 1024,
    fields: 32,
};

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
}

/// What a message grows by between the head that was received and its end: the fields that are added, and texts that are
/// kept until then.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Growth {
    text: u16,
    fields: u16,
}

/// Sizes of the head that a message was received with; 0 for a message that did not begin with one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    text: u32,
    fields: u32,
}

impl Received {
    /// A message without a head.
    pub(super) const NOTHING: Self = Self { text: 0, fields: 0 };

    pub(super) fn new(text: usize, fields: usize) -> Self {
        // Heads are far smaller than 4 GiB.
        let to = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            text: to(text),
            fields: to(fields),
        }
    }
}

/// Buffers of a thread, for further messages.
#[derive(Debug)]
struct Buffers {
    #[expect(clippy::vec_box, reason = "messages have the boxes")]
    recycled: Vec<Box<Content>>,
    /// The most by which messages of this window and of the one before have grown. If there are more than [`RECYCLED`]
    /// messages at a time, most buffers are new. Growing them costs more than filling them, and what is never filled is
    /// held while a request waits.
    growth: [Growth; 2],
    /// Number of measured messages in this window.
    measured: u16,
    /// Size of the last head that was received field by field.
    last_head: Received,
}

impl Buffers {
    const fn new() -> Self {
        Self {
            recycled: Vec::new(),
            growth: [Growth { text: 0, fields: 0 }, USUAL],
            measured: 0,
            last_head: Received::NOTHING,
        }
    }

    fn measure(&mut self, grown: Growth) {
        let [most, before] = &mut self.growth;
        *most = most.max(grown);
        self.measured += 1;
        if self.measured == WINDOW {
            self.measured = 0;
            *before = std::mem::take(most);
        }
    }

    fn expected(&self) -> Growth {
        self.growth[0].max(self.growth[1])
    }
}

impl Content {
    /// Returns whether another message can use the buffers. Without text there is nothing to recycle, and the next head
    /// would find no space reserved.
    fn is_recyclable(&self) -> bool {
        (1..=RECYCLED_TEXT).contains(&self.text.capacity())
            && self.list.capacity() <= RECYCLED_FIELDS
    }

    fn clear(&mut self) {
        self.text.clear();
        self.list.clear();
        self.present = 0;
        self.received = Received::NOTHING;
    }
}

impl Growth {
    fn max(self, other: Self) -> Self {
        Self {
            text: self.text.max(other.text),
            fields: self.fields.max(other.fields),
        }
    }

    /// Returns the growth of a message since it was received, as far as space is reserved for it.
    fn of(content: &Content) -> Self {
        let Received { text, fields } = content.received;
        let grown = |now: usize, then: u32, most: u16| {
            let grown = now.saturating_sub(then as usize);
            u16::try_from(grown).unwrap_or(most).min(most)
        };
        Self {
            text: grown(content.text.len(), text, MOST.text),
            fields: grown(content.list.len(), fields, MOST.fields),
        }
    }
}

/// Returns buffers for a message, recycled or new, with space for a head of this size and for what is added to it. Without a
/// head, new ones have no space.
pub(super) fn take(head: Received) -> Box<Content> {
    let (recycled, expected) = BUFFERS.with_borrow_mut(|buffers| {
        let recycled = buffers.recycled.pop();
        (recycled, buffers.expected())
    });
    let mut content = recycled.unwrap_or_else(|| Box::new(Content::new()));
    let Received { text, fields } = head;
    if text > 0 {
        // Exactly, as buffers that grow on demand double.
        let Content {
            text: space, list, ..
        } = &mut *content;
        space.reserve_exact(text as usize + usize::from(expected.text));
        list.reserve_exact(fields as usize + usize::from(expected.fields));
    }
    content
}

/// Returns the size of the last head that was received field by field, as far as space is reserved for it.
pub(super) fn last_head() -> Received {
    let Received { text, fields } = BUFFERS.with_borrow(|buffers| buffers.last_head);
    Received {
        text: text.min(LARGEST_HEAD.text),
        fields: fields.min(LARGEST_HEAD.fields),
    }
}

/// Records the size of a head that was received field by field.
pub(super) fn note_head(head: Received) {
    BUFFERS.with_borrow_mut(|buffers| buffers.last_head = head);
}

/// Takes back the buffers of a message: measures what was added to it until its end, and keeps them for a further message
/// unless there are enough.
pub(super) fn put(mut content: Box<Content>) {
    // A thread that is ending measures nothing, and keeps nothing.
    let grown = (content.received.text > 0).then(|| Growth::of(&content));
    let _ = BUFFERS.try_with(|buffers| {
        let buffers = &mut *buffers.borrow_mut();
        if let Some(grown) = grown {
            buffers.measure(grown);
        }
        if content.is_recyclable() && buffers.recycled.len() < RECYCLED {
            content.clear();
            buffers.recycled.push(content);
        }
    });
}

/// Frees the buffers that the calling thread has recycled.
pub(crate) fn forget_buffers() {
    BUFFERS.with_borrow_mut(|buffers| buffers.recycled = Vec::new());
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::protocol::fields::{Fields, Key, Known, STEP, Span};

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// Kept with the text until the end of a message.
    const METHOD: &[u8] = b"GET";

    fn received() -> Fields {
        let host = (Known::Host, Span::new(16, 4), Span::new(22, 1));
        Fields::of_head(HEAD, [host].into_iter())
    }

    /// Sends messages with `added` further bytes of text, and returns the capacities of a new message thereafter.
    fn after(messages: u16, added: usize) -> (usize, usize) {
        for _ in 0..messages {
            let mut fields = received();
            fields.push(Key::unlisted(b"via"), &vec![b'a'; added]);
            fields.encode(&mut BytesMut::new());
            fields.add_text(METHOD);
        }
        forget_buffers();
        let fields = received();
        (fields.text.capacity(), fields.list.capacity())
    }

    #[test]
    fn new_buffers_have_space_for_what_messages_grow_by() {
        std::thread::spawn(|| {
            let line = "via: \r\n".len() + METHOD.len();
            assert_eq!(after(0, 0), (HEAD.len() + 184, 1 + 5), "not measured yet");
            after(WINDOW, 40);
            assert_eq!(after(0, 0), (HEAD.len() + line + 40, 1 + 1));
            assert_eq!(after(1, 300).0, HEAD.len() + line + 300, "at once");
            assert_eq!(after(WINDOW - 1, 40).0, HEAD.len() + line + 300);
            assert_eq!(after(WINDOW, 40).0, HEAD.len() + line + 40, "forgotten");
            assert_eq!(after(1, 100_000).0, HEAD.len() + 512, "not for the rare");
            after(WINDOW, 40);
            after(WINDOW, 40);
            drop(received());
            let recycled = Fields::of_head(&[b'a'; 400], [].into_iter());
            assert_eq!(recycled.text.capacity(), 400 + line + 40, "not doubled");
            let mut longer = recycled.clone();
            assert_eq!(longer.text.capacity(), 400 + line + 40, "copies, too");
            longer.push(Key::unlisted(b"via"), &[b'a'; 60]);
            assert!(longer.text.capacity() <= 400 + line + 60 + STEP);
            let mut by_field = Fields::default();
            by_field.push(Key::unlisted(b"via"), &[b'a'; 200]);
            by_field.end_head();
            forget_buffers();
            let like_it = Fields::for_head().text.capacity();
            assert_eq!(like_it, by_field.text.len() + line + 40);
        })
        .join()
        .unwrap();
    }
}
