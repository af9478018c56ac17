//! Records of a worker that are free for further requests.

use std::cell::RefCell;
use std::rc::Rc;

use super::Record;

/// Maximum number of free records; more requests at a time allocate theirs.
const FREE: usize = 64;

/// The free records of a worker.
#[derive(Debug, Default)]
pub(crate) struct Records(RefCell<Vec<Rc<Record>>>);

impl Records {
    /// Returns an empty record.
    #[inline]
    pub(crate) fn take(&self) -> Rc<Record> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back the record of a request that has ended. A record that an attempt still uses is freed with it.
    #[inline]
    pub(crate) fn recycle(&self, record: Rc<Record>) {
        let mut free = self.0.borrow_mut();
        if Rc::strong_count(&record) > 1 || free.len() >= FREE {
            return;
        }
        record.notes_mut().reset();
        free.push(record);
    }

    /// Frees all of them.
    pub(crate) fn clear(&self) {
        self.0.take();
    }
}
