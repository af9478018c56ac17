use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

/// The credentials of each review, and the verb and the namespace that it is about.
type Asked = Arc<Mutex<Vec<(String, String, Option<String>)>>>;

/// Permits `some` to connect to pods of the namespaces `shop` and `till`, in the latter only half; `all` to all.
async fn answer(request: Request<Incoming>, asked: Asked) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let credentials = head.headers.get(AUTHORIZATION);
    let credentials = credentials.map_or("", |value| value.to_str().unwrap());
    let body = body.collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let about = &review["spec"]["resourceAttributes"];
    assert_eq!(
        (&about["resource"], &about["subresource"]),
        (&json!("pods"), &json!("portforward"))
    );
    let (verb, namespace) = (text(&about["verb"]).unwrap(), text(&about["namespace"]));
    let allowed = match (credentials, namespace.as_deref(), &*verb) {
        ("Bearer all", ..) | ("Bearer some", Some("shop"), _) => true,
        ("Bearer some", Some("till"), verb) => verb == "create",
        ("Bearer some" | "Bearer none", ..) => false,
        _ => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized"});
            let mut response = Response::new(Full::from(status.to_string()));
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            return response;
        }
    };
    asked
        .lock()
        .unwrap()
        .push((credentials.to_owned(), verb, namespace));
    review["status"] = json!({"allowed": allowed});
    Response::new(Full::from(review.to_string()))
}

async fn start() -> (Config, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let answer = move |request| answer(request, Arc::clone(&seen));
    let address = crate::api_port::start(answer).await;
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.auth_info.token = Some("the controller's own".to_owned().into());
    config.auth_info.impersonate = Some("system:admin".to_owned());
    (config, asked)
}

async fn permitted_to(config: &Config, token: &str) -> Result<Vec<String>, Denied> {
    let client = client(config.clone(), token).unwrap();
    let namespaces = ["shop", "till", "web"].map(str::to_owned);
    let permitted = permitted(&client, namespaces.into()).await?;
    Ok(permitted.into_iter().collect())
}

#[tokio::test]
async fn viewers_reach_the_pods_that_they_may_connect_to() {
    let (config, asked) = start().await;
    assert_eq!(
        permitted_to(&config, "some").await,
        Ok(vec!["shop".to_owned()])
    );
    let all = ["shop", "till", "web"].map(str::to_owned).to_vec();
    assert_eq!(permitted_to(&config, "all").await, Ok(all));
    assert_eq!(permitted_to(&config, "none").await, Err(Denied::Forbidden));
    assert_eq!(permitted_to(&config, "wrong").await, Err(Denied::Invalid));
    let asked = asked.lock().unwrap();
    assert!(
        asked
            .iter()
            .all(|(credentials, ..)| credentials.starts_with("Bearer "))
    );
    // Both verbs, in one request each, where everything is permitted.
    let all = asked
        .iter()
        .filter(|(credentials, ..)| credentials == "Bearer all");
    assert_eq!(
        all.map(|(_, verb, _)| verb.as_str()).collect::<Vec<_>>(),
        VERBS
    );
}

#[tokio::test]
async fn an_api_server_that_cannot_be_reached_is_no_refusal() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = Config::new(format!("http://{address}").parse().unwrap());
    assert_eq!(permitted_to(&config, "all").await, Err(Denied::Unavailable));
}
