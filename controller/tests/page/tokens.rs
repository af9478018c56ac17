//! Tokens: over the network for everything, over loopback only for the admin ports of a cluster.

use std::sync::atomic::Ordering;

use maglor_testkit::browser::Page;

use crate::fixture::Fixture;
use crate::{DESKTOP, open};

/// Waits for the question for a token, and answers it.
async fn enter(page: &Page, token: &str) {
    page.eventually("document.activeElement.id === 'token'")
        .await;
    page.evaluate(&format!(
        "document.getElementById('token').value = '{token}'"
    ))
    .await;
    page.press("Enter").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_over_the_network_enters_a_token() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let url = fixture.over_the_network().await;
    let page = fixture.page(DESKTOP).await;
    page.navigate(&url).await;
    enter(&page, "wrong").await;
    page.eventually("document.querySelector('dialog [role=alert]')")
        .await;
    enter(&page, "operator").await;
    page.eventually("document.querySelectorAll('.node').length === 12")
        .await;
    page.eventually("!document.querySelector('dialog')").await;
    // The token is not asked for again in this tab.
    page.navigate(&format!("{url}?again#/services")).await;
    page.eventually("document.querySelectorAll('tbody tr').length === 12")
        .await;
    assert!(
        page.round_trips()
            .iter()
            .all(|one| !one.url.contains("operator"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_loopback_only_live_requests_and_stories_need_a_token() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    fixture.mesh.personal.store(true, Ordering::Relaxed);
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/service/shop/reviews").await;
    page.eventually("document.querySelectorAll('.queue').length === 3")
        .await;
    page.eventually(
        "performance.getEntriesByType('resource').some(({ name }) => name.includes('/about'))",
    )
    .await;
    assert_eq!(
        page.evaluate("document.querySelector('dialog')").await,
        serde_json::Value::Null
    );

    // A user without a token cancels, is not asked again, and sees why there is nothing.
    let problem = "document.querySelector('.notice:not([hidden])').textContent";
    for (key, title) in [("3", "Tap"), ("4", "Why")] {
        page.press(key).await;
        page.eventually(&format!(
            "document.querySelector('main h1').textContent === '{title}' && document.activeElement.id === 'token'"
        ))
        .await;
        page.evaluate("[...document.querySelectorAll('dialog button')].find(({ textContent }) => textContent === 'Cancel').click()")
            .await;
        page.eventually(&format!("{problem}.includes('a token is required')"))
            .await;
    }

    page.press("3").await;
    enter(&page, "operator").await;
    page.eventually("document.querySelectorAll('.tap tbody tr').length >= 3")
        .await;
    page.press("4").await;
    page.eventually("document.querySelectorAll('.tap tbody tr').length === 2")
        .await;
    open(&page, &fixture, "#/service/shop/reviews").await;
    page.eventually("document.querySelectorAll('.tap tbody tr').length === 2")
        .await;

    let other = fixture.page(DESKTOP).await;
    other.navigate(&fixture.url("#/why")).await;
    enter(&other, "other").await;
    other
        .eventually(&format!("{problem}.includes('pods/portforward')"))
        .await;
    // A service shows everything else, and does not ask.
    other.evaluate("[...document.querySelectorAll('dialog button')].find(({ textContent }) => textContent === 'Cancel').click()")
        .await;
    open(&other, &fixture, "#/service/shop/reviews").await;
    other
        .eventually("performance.getEntriesByType('resource').some(({ name }) => name.includes('/why?service='))")
        .await;
    assert_eq!(
        other.evaluate("document.querySelector('dialog')").await,
        serde_json::Value::Null
    );
    // Another user can sign in.
    other.press("3").await;
    enter(&other, "operator").await;
    other
        .eventually("document.querySelectorAll('.tap tbody tr').length >= 3")
        .await;
}
