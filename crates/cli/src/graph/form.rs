//! Output formats of the graph: rows in the formats of all commands, input files of `maglor plan placement`, and
//! pictures.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::live::table::Format;

/// Output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// Rows of services, calls and delays; JSON and YAML are the whole snapshot.
    Rows(Format),
    Dot,
    Graph,
    Nodes,
    Placement,
    Svg,
}

const FORMS: [Form; 10] = [
    Form::Rows(Format::Table),
    Form::Rows(Format::Wide),
    Form::Rows(Format::Json),
    Form::Rows(Format::Yaml),
    Form::Rows(Format::Csv),
    Form::Dot,
    Form::Graph,
    Form::Nodes,
    Form::Placement,
    Form::Svg,
];

impl ValueEnum for Form {
    fn value_variants<'a>() -> &'a [Self] {
        &FORMS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Rows(Format::Json) => ("json", "The whole snapshot as JSON"),
            Self::Rows(Format::Yaml) => ("yaml", "The whole snapshot as YAML"),
            Self::Rows(format) => return format.to_possible_value(),
            Self::Dot => ("dot", "For Graphviz"),
            Self::Graph => ("graph", "Input of `maglor plan placement --graph`"),
            Self::Nodes => ("nodes", "Input of `maglor plan placement --nodes`"),
            Self::Placement => ("placement", "Input of `maglor plan placement --current`"),
            Self::Svg => ("svg", "A drawing as SVG"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// A kind of rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Kind {
    /// Services.
    Services,
    /// Calls between services.
    Calls,
    /// Delays between nodes.
    Delays,
}
