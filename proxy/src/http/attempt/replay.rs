//! A request's body that can be sent more than once.
//!
//! Frames are kept when they are first read, up to a limit. A frame beyond the limit is sent once and dropped; after
//! this the request cannot be repeated. Several readers may be active at a time (a hedged request); the one that is
//! furthest ahead reads from the client.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};

use crate::protocol::error::ProxyError;
use crate::protocol::message::{Body, Source};

/// A request body from which several readers can be created.
#[derive(Debug)]
pub(super) struct Replay(Rc<RefCell<Tape>>);

#[derive(Debug)]
struct Tape {
    /// Source of the frames that were not read yet.
    source: Body,
    /// Whether the client has sent the whole body.
    ended: bool,
    /// The kept frames; `first` is the number of the first kept frame.
    frames: VecDeque<Piece>,
    first: usize,
    bytes: usize,
    limit: usize,
    /// Whether the body exceeds what is kept.
    is_too_large: bool,
    /// Whether frames are dropped as soon as they are sent.
    once: bool,
    /// Whether there are following readers, which may be behind the others.
    followed: bool,
    /// Length of the whole body in bytes; `None` if it is unknown.
    length: Option<u64>,
    /// Number of owners that may still read from the client: readers that do not follow, and the [`Replay`]
    /// that creates them.
    pullers: usize,
    /// Wakers of readers that wait for a frame.
    waiting: Vec<Waker>,
}

#[derive(Clone, Debug)]
enum Piece {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
}

/// The smallest mean size of kept frames: the list of them takes memory, too.
const MEAN_FRAME: usize = 32;
/// Number of frames that are kept however small they are.
const FRAMES: usize = 16;

impl Replay {
    /// Creates a body that keeps up to `limit` bytes of `source`, in frames of 32 bytes or more in the mean.
    pub(super) fn new(source: Body, limit: usize) -> Self {
        Self(Rc::new(RefCell::new(Tape {
            ended: source.is_end_stream(),
            length: source.size_hint().exact(),
            pullers: 1,
            source,
            frames: VecDeque::new(),
            first: 0,
            bytes: 0,
            limit,
            is_too_large: false,
            once: false,
            followed: false,
            waiting: Vec::new(),
        })))
    }

    /// Returns a reader of the body from its beginning.
    pub(super) fn body(&self) -> Body {
        self.reader(false)
    }

    /// Returns a following reader: it gets the frames that other readers take from the client, and fails when it is
    /// behind by more than is kept.
    pub(super) fn follow(&self) -> Body {
        self.0.borrow_mut().followed = true;
        self.reader(true)
    }

    fn reader(&self, follows: bool) -> Body {
        self.0.borrow_mut().pullers += usize::from(!follows);
        Body::source(Box::new(Reader {
            tape: Rc::clone(&self.0),
            at: 0,
            sent: 0,
            follows,
        }))
    }

    /// Returns the length of the whole body in bytes; `None` if it is unknown.
    pub(super) fn length(&self) -> Option<u64> {
        self.0.borrow().length
    }

    /// Returns whether no part of the body has been dropped.
    pub(super) fn is_whole(&self) -> bool {
        self.0.borrow().first == 0
    }

    /// Records that the body will not be repeated: only frames that current readers need are still kept.
    pub(super) fn abandon(&self) {
        let mut tape = self.0.borrow_mut();
        tape.once = !tape.followed;
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        leave(&self.0);
    }
}

/// Releases one owner's right to read from the client. After the last owner has left, following readers get the
/// frames read so far, and the client's connection is not kept open for them.
fn leave(tape: &RefCell<Tape>) {
    let (source, waiting) = {
        let tape = &mut *tape.borrow_mut();
        tape.pullers -= 1;
        if tape.pullers > 0 {
            return;
        }
        let source = std::mem::replace(&mut tape.source, Body::empty());
        (source, std::mem::take(&mut tape.waiting))
    };
    drop(source);
    waiting.into_iter().for_each(Waker::wake);
}

/// One pass over the body.
#[derive(Debug)]
struct Reader {
    tape: Rc<RefCell<Tape>>,
    /// Number of the next frame.
    at: usize,
    sent: u64,
    follows: bool,
}

impl Tape {
    /// Reads a frame from the client; returns false at the end of the body.
    fn poll_pull(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, ProxyError>> {
        let frame = match Pin::new(&mut self.source).poll_frame(cx) {
            Poll::Pending => {
                self.wait(cx);
                return Poll::Pending;
            }
            Poll::Ready(frame) => frame,
        };
        self.waiting.drain(..).for_each(Waker::wake);
        let Some(frame) = frame else {
            self.ended = true;
            return Poll::Ready(Ok(false));
        };
        let frame = frame?;
        let piece = match frame.into_data() {
            Ok(data) => Piece::Data(data),
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => Piece::Trailers(Box::new(trailers)),
                Err(_) => return Poll::Ready(Ok(true)),
            },
        };
        if let Piece::Data(data) = &piece {
            self.bytes += data.len();
        }
        self.frames.push_back(piece);
        self.is_too_large |=
            self.bytes > self.limit || self.frames.len() > FRAMES + self.limit / MEAN_FRAME;
        self.ended = self.source.is_end_stream();
        Poll::Ready(Ok(true))
    }

    fn wait(&mut self, cx: &Context<'_>) {
        let known = |waker: &Waker| waker.will_wake(cx.waker());
        if !self.waiting.iter().any(known) {
            self.waiting.push(cx.waker().clone());
        }
    }

    /// Drops frames before number `at`.
    fn forget(&mut self, at: usize) {
        while self.first < at && self.frames.pop_front().is_some() {
            self.first += 1;
        }
    }
}

impl Source for Reader {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let tape = &mut *self.tape.borrow_mut();
        loop {
            let Some(offset) = self.at.checked_sub(tape.first) else {
                // Another attempt has continued with a body that is too large to keep.
                return Poll::Ready(Some(Err(ProxyError::ReplayLost)));
            };
            if let Some(piece) = tape.frames.get(offset).cloned() {
                self.at += 1;
                if !self.follows && (tape.once || tape.is_too_large) {
                    tape.forget(self.at);
                }
                return Poll::Ready(Some(Ok(match piece {
                    Piece::Data(data) => {
                        self.sent += data.len() as u64;
                        Frame::data(data)
                    }
                    Piece::Trailers(trailers) => Frame::trailers(*trailers),
                })));
            }
            if tape.ended {
                return Poll::Ready(None);
            }
            if self.follows {
                if tape.pullers == 0 {
                    return Poll::Ready(Some(Err(ProxyError::ClientGone)));
                }
                tape.wait(cx);
                return Poll::Pending;
            }
            match tape.poll_pull(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let tape = self.tape.borrow();
        tape.ended && self.at >= tape.first + tape.frames.len()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.tape.borrow().length;
        length.map_or_else(SizeHint::default, |length| {
            SizeHint::with_exact(length.saturating_sub(self.sent))
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.follows {
            leave(&self.tape);
        }
        // Only this reader may have been registered for the client's next bytes.
        let waiting = std::mem::take(&mut self.tape.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Source of given frames, one for each poll, with a pending poll before each.
    #[derive(Debug)]
    struct Script(VecDeque<&'static str>, bool);

    impl Source for Script {
        fn poll_frame(
            &mut self,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
            self.1 = !self.1;
            if self.1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(
                self.0
                    .pop_front()
                    .map(|data| Ok(Frame::data(Bytes::from(data)))),
            )
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().map(|data| data.len() as u64).sum())
        }
    }

    fn replay(limit: usize) -> Replay {
        let script = Script(["ab", "cd", "ef"].into(), false);
        Replay::new(Body::source(Box::new(script)), limit)
    }

    async fn frame(body: &mut Body) -> Option<Result<Bytes, ProxyError>> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    async fn rest(mut body: Body) -> String {
        let mut all = Vec::new();
        while let Some(data) = frame(&mut body).await {
            all.extend_from_slice(&data.expect("no error"));
        }
        String::from_utf8(all).expect("text")
    }

    #[tokio::test]
    async fn what_fits_is_sent_again_and_in_the_same_length() {
        let replay = replay(6);
        for _ in 0..3 {
            let body = replay.body();
            assert_eq!(body.size_hint().exact(), Some(6));
            assert_eq!(rest(body).await, "abcdef");
            assert!(replay.is_whole());
        }
    }

    #[tokio::test]
    async fn a_body_of_tiny_frames_is_sent_once() {
        const LIMIT: usize = 320;
        for (frames, is_kept) in [(FRAMES + 10, true), (FRAMES + 11, false)] {
            let script = Script(vec!["a"; frames].into(), false);
            let replay = Replay::new(Body::source(Box::new(script)), LIMIT);
            assert_eq!(rest(replay.body()).await.len(), frames);
            assert_eq!(replay.is_whole(), is_kept);
        }
    }

    #[tokio::test]
    async fn an_abandoned_pass_loses_nothing() {
        let replay = replay(100);
        let mut first = replay.body();
        assert_eq!(frame(&mut first).await.unwrap().unwrap(), "ab");
        drop(first);
        assert_eq!(rest(replay.body()).await, "abcdef");
    }

    #[tokio::test]
    async fn beyond_the_limit_it_is_sent_once() {
        let replay = replay(3);
        let mut slow = replay.body();
        assert_eq!(frame(&mut slow).await.unwrap().unwrap(), "ab");
        assert!(replay.is_whole());
        assert_eq!(rest(replay.body()).await, "abcdef");
        assert!(!replay.is_whole());
        assert!(matches!(
            frame(&mut slow).await,
            Some(Err(ProxyError::ReplayLost))
        ));
    }

    #[tokio::test]
    async fn after_giving_up_nothing_is_kept() {
        let replay = replay(100);
        let mut body = replay.body();
        assert_eq!(frame(&mut body).await.unwrap().unwrap(), "ab");
        replay.abandon();
        assert_eq!(rest(body).await, "cdef");
        assert_eq!(replay.0.borrow().frames.len(), 0);
    }

    #[tokio::test]
    async fn a_bystander_reads_what_others_have_read_and_delays_no_reader() {
        let replay = replay(100);
        let mut bystander = replay.follow();
        let mut main = replay.body();
        let waits = poll_fn(|cx| Poll::Ready(Pin::new(&mut bystander).poll_frame(cx).is_pending()));
        assert!(waits.await);
        assert_eq!(frame(&mut main).await.unwrap().unwrap(), "ab");
        assert_eq!(frame(&mut bystander).await.unwrap().unwrap(), "ab");
        replay.abandon();
        assert_eq!(rest(main).await, "cdef");
        assert_eq!(rest(bystander).await, "cdef");
    }

    #[tokio::test]
    async fn a_bystander_does_not_wait_for_what_no_other_reads() {
        let replay = replay(100);
        let (mut bystander, mut waiting) = (replay.follow(), replay.follow());
        let mut main = replay.body();
        assert_eq!(frame(&mut main).await.unwrap().unwrap(), "ab");
        assert_eq!(frame(&mut waiting).await.unwrap().unwrap(), "ab");
        drop(replay);
        let (left, ()) = tokio::join!(frame(&mut waiting), async { drop(main) });
        assert!(
            matches!(left, Some(Err(ProxyError::ClientGone))),
            "{left:?}"
        );
        assert_eq!(frame(&mut bystander).await.unwrap().unwrap(), "ab");
        let left = frame(&mut bystander).await;
        assert!(
            matches!(left, Some(Err(ProxyError::ClientGone))),
            "{left:?}"
        );
    }

    #[tokio::test]
    async fn two_passes_at_a_time_both_get_all() {
        let replay = replay(100);
        let (one, two) = tokio::join!(rest(replay.body()), rest(replay.body()));
        assert_eq!((one.as_str(), two.as_str()), ("abcdef", "abcdef"));
    }
}
