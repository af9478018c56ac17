//! How much memory the system counts as ours: proc(5), `statm`.

use std::fs;

/// Bytes that this process alone has; `None` where the system does not tell.
pub(crate) fn own() -> Option<u64> {
    let [resident, files] = statm()?;
    Some(resident.saturating_sub(files))
}

/// Bytes of files' pages, of which code and constants are the most.
pub(super) fn files() -> Option<u64> {
    let [_, files] = statm()?;
    Some(files)
}

fn statm() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let mut next = || Some(pages.next()?.ok()? * page_size());
    Some([next()?, next()?])
}

#[allow(unsafe_code)]
fn page_size() -> u64 {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_known() {
        assert!(own().is_some_and(|bytes| bytes > 0));
        assert!(files().is_some_and(|bytes| bytes > 0));
    }
}
