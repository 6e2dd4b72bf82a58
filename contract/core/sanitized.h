#pragma once

/// Whether this build has the address or the thread sanitizer. Such a build looks for other faults
/// and is about ten times slower, so its tests draw less.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVFENCE_IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVFENCE_IS_SANITIZED true
#endif
#endif
#ifndef KVFENCE_IS_SANITIZED
#define KVFENCE_IS_SANITIZED false
#endif

namespace kvfence {

inline constexpr bool kIsSanitized = KVFENCE_IS_SANITIZED;

}  // namespace kvfence
