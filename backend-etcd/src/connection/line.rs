//! Requests and streams on a channel.

use futures_util::Stream;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// What a server gives for a password. All members know it.
pub(super) type Token = MetadataValue<Ascii>;

/// The channel, and what each request on it has with it.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) channel: Channel,
    pub(super) token: Option<Token>,
}

impl Line {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        if let Some(token) = &self.token {
            metadata.insert("token", token.clone());
        }
        // A member without a leader ends its streams.
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        request
    }

    /// A client of the channel, when that takes a request.
    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(client)
    }

    pub(super) async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut client = self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(self.request(message), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    pub(super) async fn open<Q, A>(
        &self,
        path: &'static str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut client = self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.streaming(self.request(messages), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }
}
