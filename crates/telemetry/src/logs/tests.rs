use super::*;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logging(directives: &str, format: Format, test: impl FnOnce(&Buffer, &LogHandle)) {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let (subscriber, handle) = subscriber(directives, format, move || writer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || test(&buffer, &handle));
}

#[test]
fn the_level_changes_at_run_time() {
    logging("info", Format::Text, |buffer, handle| {
        let emit = || {
            tracing::debug!(answer = 42, "fine");
            tracing::info!("coarse");
            buffer.take()
        };
        assert_eq!(emit().lines().count(), 1);
        handle.set("debug").unwrap();
        let text = emit();
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.contains("DEBUG") && text.contains("fine answer=42"),
            "{text}"
        );
        handle.set("off").unwrap();
        assert_eq!(emit(), "");
        assert_eq!(handle.directives(), "off");
    });
}

fn one_to_four() {
    tracing::trace!(target: "maglor_proxy::http::serve", "one");
    tracing::info!(target: "maglor_proxy::tcp", "two");
    two_more();
}

fn two_more() {
    tracing::warn!(target: "maglor_proxy::tcp", "three");
    tracing::error!(target: "noisy", "four");
}

#[test]
fn the_longest_target_decides() {
    logging(
        "maglor_proxy::http=trace, WARN,noisy=off",
        Format::Text,
        |buffer, _| {
            one_to_four();
            let text = buffer.take();
            assert!(text.contains("one") && text.contains("three"), "{text}");
            assert_eq!(text.lines().count(), 2, "{text}");
        },
    );
}

#[test]
fn json_has_an_object_in_a_line() {
    logging("info", Format::Json, |buffer, _| {
        tracing::info!(target: "t", port = 8080, "listening on \"web\"\n");
        let text = buffer.take();
        assert_eq!(text.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["level"], "INFO");
        assert_eq!(value["target"], "t");
        assert_eq!(value["message"], "listening on \"web\"\n");
        assert_eq!(value["port"], 8080);
        assert!(value["timestamp"].as_str().unwrap().ends_with('Z'));
    });
}

#[test]
fn an_error_names_the_directive_and_changes_nothing() {
    logging("warn", Format::Text, |_, handle| {
        for (filter, directive) in [
            ("inof", "inof"),
            ("info,a=loud", "a=loud"),
            ("info, =debug", "=debug"),
            ("a=b=info", "a=b=info"),
            ("info,[span]=debug", "[span]=debug"),
            ("maglor_proxy", "maglor_proxy"),
        ] {
            let error = handle.set(filter).unwrap_err();
            let LogError::Directive {
                directive: named, ..
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!(named, directive);
            assert!(error.to_string().contains(directive), "{error}");
        }
        assert_eq!(handle.set(" , "), Err(LogError::Empty));
        assert_eq!(handle.directives(), "warn");
    });
}

#[test]
fn formats_have_names() {
    assert_eq!("json".parse(), Ok(Format::Json));
    assert_eq!("text".parse(), Ok(Format::Text));
    assert_eq!("xml".parse::<Format>(), Err(LogError::Format("xml".into())));
}

#[test]
fn a_handle_without_a_logger_says_so() {
    let (subscriber, handle) = subscriber("info", Format::Text, io::sink).unwrap();
    drop(subscriber);
    assert_eq!(handle.set("debug"), Err(LogError::Gone));
}
