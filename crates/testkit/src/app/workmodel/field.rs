//! Fields with a range: values out of it are rejected with the field's name, to which `serde_json`
//! adds the line.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error};

use crate::app::distribution::Shape;

type Result<'de, T, D> = std::result::Result<T, <D as Deserializer<'de>>::Error>;

/// Deserializes a `T`; an error begins with the field's name.
fn named<'de, T: Deserialize<'de>, D: Deserializer<'de>>(name: &str, d: D) -> Result<'de, T, D> {
    T::deserialize(d).map_err(|error| D::Error::custom(format!("{name}: {error}")))
}

fn count<'de, D: Deserializer<'de>>(name: &str, d: D, low: u32, high: u32) -> Result<'de, u32, D> {
    let value: u32 = named(name, d)?;
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let message = format!("{name}: {value} is out of range; valid: {low}-{high}");
    Err(D::Error::custom(message))
}

fn number<'de, D: Deserializer<'de>>(name: &str, d: D, high: f64) -> Result<'de, f64, D> {
    between(name, d, 0.0, high)
}

fn between<'de, D: Deserializer<'de>>(
    name: &str,
    d: D,
    low: f64,
    high: f64,
) -> Result<'de, f64, D> {
    let value: f64 = named(name, d)?;
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let message = format!("{name}: {value} is out of range; valid: {low}-{high}");
    Err(D::Error::custom(message))
}

pub(super) fn cpu_limit<'de, D: Deserializer<'de>>(d: D) -> Result<'de, Option<f64>, D> {
    between("cpu_limit", d, 0.001, 1.0).map(Some)
}

pub(super) fn cpu_period<'de, D: Deserializer<'de>>(d: D) -> Result<'de, f64, D> {
    between("cpu_period", d, 0.001, 10.0)
}

pub(super) fn distribution<'de, D: Deserializer<'de>>(d: D) -> Result<'de, String, D> {
    let text: String = named("distribution", d)?;
    let parsed: std::result::Result<Shape, String> = text.parse();
    match parsed {
        Ok(_) => Ok(text),
        Err(error) => Err(D::Error::custom(format!("distribution: {error}"))),
    }
}

pub(super) fn mean_response_size<'de, D: Deserializer<'de>>(d: D) -> Result<'de, f64, D> {
    number("mean_response_size", d, 1000.0)
}

pub(super) fn probabilities<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<'de, BTreeMap<String, f64>, D> {
    let values: BTreeMap<String, f64> = named("probabilities", d)?;
    for (service, value) in &values {
        if !(0.0..=1.0).contains(value) {
            let message = format!("probabilities.{service}: {value} is out of range; valid: 0-1");
            return Err(D::Error::custom(message));
        }
    }
    Ok(values)
}

pub(super) fn replicas<'de, D: Deserializer<'de>>(d: D) -> Result<'de, u32, D> {
    count("replicas", d, 1, 10_000)
}

pub(super) fn seq_len<'de, D: Deserializer<'de>>(d: D) -> Result<'de, u32, D> {
    count("seq_len", d, 0, 1_000_000)
}

pub(super) fn service_time<'de, D: Deserializer<'de>>(d: D) -> Result<'de, f64, D> {
    number("service_time", d, 3600.0)
}

pub(super) fn sleep_time<'de, D: Deserializer<'de>>(d: D) -> Result<'de, f64, D> {
    number("sleep_time", d, 3600.0)
}

pub(super) fn workers<'de, D: Deserializer<'de>>(d: D) -> Result<'de, u32, D> {
    count("workers", d, 1, 10_000)
}
