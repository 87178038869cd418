//! Tokens and ids of holds as columns, by sqlx.

use sqlx_core::database::Database;
use sqlx_core::decode::Decode;
use sqlx_core::encode::Encode;
use sqlx_core::encode::IsNull;
use sqlx_core::error::BoxDynError;
use sqlx_core::types::Type;

use crate::{FencingToken, HoldId};

/// Stores a type as another one, on every database that has columns for that.
macro_rules! column {
    ($stored:ty as $column:ty) => {
        impl<DB: Database> Type<DB> for $stored
        where
            $column: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <$column as Type<DB>>::type_info()
            }

            fn compatible(column: &DB::TypeInfo) -> bool {
                <$column as Type<DB>>::compatible(column)
            }
        }

        impl<'q, DB: Database> Encode<'q, DB> for $stored
        where
            $column: Encode<'q, DB>,
        {
            fn encode_by_ref(&self, arguments: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                <$column as Encode<'q, DB>>::encode(<$column>::try_from(*self)?, arguments)
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $stored
        where
            $column: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
                Ok(Self::try_from(<$column as Decode<'r, DB>>::decode(value)?)?)
            }
        }
    };
}

column!(FencingToken as i64);
column!(HoldId as String);
