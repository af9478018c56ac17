//! A line of the list of stories.

use maglor_telemetry::story::{Listed, duration};

use super::super::served::short;
use super::super::table::{Column, Row, or_dash};

impl Row for Listed {
    const COLUMNS: &'static [Column] = &[
        Column::text("TIME").of("time"),
        Column::text("PROXY").of("proxy"),
        Column::text("ID").of("id"),
        Column::text("REQUEST"),
        Column::number("STATUS").of("request/status"),
        Column::text("FLAG").of("flag"),
        Column::number("TOOK").of("times/total_ms"),
        Column::text("CAUSE").of("cause"),
        Column::text("CLIENT").of("client").wide(),
        Column::text("EXPLANATION").of("sentence").wide(),
    ];

    fn cells(&self) -> Vec<String> {
        let Self {
            cause,
            sentence,
            story,
        } = self;
        let clock = story.time.split('T').nth(1).unwrap_or(&story.time);
        let request = story.request.as_ref();
        let host = |host: &Option<String>| short(host.as_deref().unwrap_or_default());
        vec![
            clock.trim_end_matches('Z').to_owned(),
            or_dash(story.proxy.as_deref()),
            story.id.clone(),
            match request {
                Some(one) => format!("{} {}{}", one.method, host(&one.host), one.target),
                None => format!("connection of {}", story.client),
            },
            or_dash(request.map(|request| request.status)),
            story.flag.clone(),
            or_dash(request.map(|_| duration(story.times.total_ms))),
            (*cause).to_owned(),
            story.client.clone(),
            sentence.clone(),
        ]
    }
}
