//! Tests of the emulated driver through its public interfaces. They run one after the other.

/// Declares methods of a type that call the functions of the library in a field by their names.
macro_rules! functions {
    ($library:ident.$field:tt: $($name:ident($($argument:ident: $type:ty),*);)*) => {
        // Functions of these libraries have up to 16 arguments.
        #[allow(clippy::too_many_arguments)]
        impl $library {
            $(pub(crate) fn $name(&self, $($argument: $type),*) -> u32 {
                // SAFETY: the signature is that of the header, and the tests pass pointers that are
                // valid or null.
                unsafe {
                    let function =
                        self.$field.get::<unsafe extern "C" fn($($type),*) -> u32>(stringify!($name));
                    function.unwrap()($($argument),*)
                }
            })*
        }
    };
}

mod cublaslt;
mod cudarc;
mod cudnn;
mod execution;
mod nccl;
mod ordering;
mod readme;
mod rules;
