//! A new connection, and its first frames.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::connection::{Channel, More, Role};
use super::frame::{self, PREFACE, kind};
use super::past::Past;
use super::{CONNECTION_WINDOW, FIRST_WINDOW, answer, settings};
use crate::protocol::outbox::Outbox;

impl Channel {
    pub(super) fn new(role: Role) -> Rc<Self> {
        let mut output = Outbox::default();
        match &role {
            Role::Server(accepting) => {
                let (max_streams, header_list) = accepting.admission.announced();
                settings::encode(max_streams, header_list, output.tail());
            }
            Role::Client(opening) => {
                output.tail().extend_from_slice(PREFACE);
                // It fits into 32 bits.
                let list = answer::LIMITS.bytes as u32;
                settings::encode_client(opening.window, list, output.tail());
            }
        }
        let more = CONNECTION_WINDOW - FIRST_WINDOW;
        frame::encode_words(kind::WINDOW_UPDATE, 0, &[more], output.tail());
        let more = More {
            past: Past::default(),
            stream_window: FIRST_WINDOW,
            table: 4096,
            table_reduced: false,
            low_since: None,
        };
        Self::of(role, output, FIRST_WINDOW, more)
    }

    /// Becomes ready when there is room for a head and the server accepts another stream, or when it accepts none any
    /// more.
    pub(super) fn poll_begin(&self, cx: &Context<'_>) -> Poll<()> {
        {
            let core = &mut *self.core.borrow_mut();
            let open = core.streams.len();
            if let Role::Client(opening) = &mut core.role
                && core.closed.is_none()
                && !opening.gone
                && open >= opening.max_streams as usize
            {
                let waiting = &mut opening.waiting;
                if !waiting.iter().any(|one| one.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                return Poll::Pending;
            }
        }
        self.poll_room(cx)
    }
}
