//! An approximate scan of the brackets and quotes of a text, for unclosed ones and for the positions of values.

use super::explanation::Explanation;

/// An open bracket or quote.
struct Open {
    mark: char,
    line: usize,
    column: usize,
}

/// A reader of lines that recognizes only quotes, comments, brackets, and positions where a value may begin.
#[derive(Default)]
struct Scanner {
    open: Vec<Open>,
    starts: Vec<usize>,
}

impl Scanner {
    /// Reads the characters of a line before `end`.
    fn line(&mut self, line: usize, chars: &[char], end: usize) {
        self.starts.clear();
        // Whether a value may begin here, as after `: `.
        let mut fresh = true;
        let mut at = 0;
        while at < end.min(chars.len()) {
            let (c, column) = (chars[at], at);
            at += 1;
            if let Some(quote) = self.quote() {
                if c == '\\' && quote == '"' {
                    at += 1;
                } else if c == quote {
                    self.open.pop();
                }
                continue;
            }
            let next_is_space = chars.get(at).is_none_or(|c| c.is_whitespace());
            match c {
                ' ' | '\t' => continue,
                '#' if column == 0 || chars[column - 1].is_whitespace() => return,
                '-' if fresh && next_is_space => continue,
                ':' if next_is_space => {
                    fresh = true;
                    continue;
                }
                ',' if !self.open.is_empty() => {
                    fresh = true;
                    continue;
                }
                _ => {}
            }
            let begins = fresh;
            if begins {
                self.starts.push(column);
            }
            fresh = false;
            match c {
                '"' | '\'' if begins => self.push(c, line, column),
                '[' | '{' if begins || !self.open.is_empty() => {
                    self.push(c, line, column);
                    fresh = true;
                }
                ']' | '}' => drop(self.open.pop()),
                _ => {}
            }
        }
    }

    fn push(&mut self, mark: char, line: usize, column: usize) {
        self.open.push(Open { mark, line, column });
    }

    fn quote(&self) -> Option<char> {
        let mark = self.open.last()?.mark;
        matches!(mark, '"' | '\'').then_some(mark)
    }
}

/// Returns the columns of a line at which a value or a key begins.
pub(super) fn value_starts(chars: &[char]) -> Vec<usize> {
    let mut scanner = Scanner::default();
    scanner.line(0, chars, chars.len());
    scanner.starts
}

/// Returns the bracket or quote that was opened on a line above an error and is still open at the error.
pub(super) fn unclosed(lines: &[&str], at: usize, column: usize) -> Option<Explanation> {
    let mut scanner = Scanner::default();
    for (i, line) in lines.iter().enumerate().take(at + 1) {
        let chars: Vec<char> = line.chars().collect();
        let end = if i == at { column } else { chars.len() };
        scanner.line(i, &chars, end);
    }
    let open = scanner.open.pop().filter(|open| open.line < at)?;
    let close = match open.mark {
        '[' => ']',
        '{' => '}',
        quote => quote,
    };
    Some(Explanation {
        line: open.line,
        column: open.column,
        length: 1,
        message: format!("the `{}` is not closed", open.mark),
        help: format!("add `{close}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(line: &str) -> Vec<usize> {
        value_starts(&line.chars().collect::<Vec<_>>())
    }

    #[test]
    fn values_begin_after_colons_dashes_commas_and_brackets() {
        assert_eq!(starts("- a: b"), [2, 5]);
        assert_eq!(starts("a: [x, \"y: z\", {b: c}]"), [0, 3, 4, 7, 15, 16, 19]);
        assert_eq!(starts("a: b # c: d"), [0, 3]);
        assert_eq!(starts("url: http://x:1"), [0, 5]);
    }

    #[test]
    fn what_is_open_is_found() {
        let found = |text: &str| {
            let lines: Vec<_> = text.lines().collect();
            unclosed(&lines, lines.len() - 1, 1).map(|why| (why.line, why.column))
        };
        assert_eq!(found("a: [b\nc: d"), Some((0, 3)));
        assert_eq!(found("a: {b: \"c]\"\nc: d"), Some((0, 3)));
        assert_eq!(found("a: \"b\nc: d"), Some((0, 3)));
        assert_eq!(found("a: [b]\nc: d"), None);
        assert_eq!(found("a: b[c\nc: d"), None);
    }
}
