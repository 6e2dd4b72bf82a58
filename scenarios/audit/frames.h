#pragma once

/// Opening a socket, and waiting and receiving on it, interruptible by signals, for both ends.

#ifdef KVFENCE_HAS_ZMQ

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "contract/core/line.h"

namespace kvfence::audit {

/// Frames of a multipart that are kept; further ones are dropped.
inline constexpr std::size_t kFramesMax = 8;

/// Calls open(), which binds or connects a socket. Errors: an invalid address.
template <class Open>
std::optional<InputError> try_open(const char* option, const std::string& address,
                                   const char* expected, Open&& open) {
  // ZeroMQ takes the low 16 bits.
  if (std::strtoull(address.c_str() + address.rfind(':') + 1, nullptr, 10) > UINT16_MAX) {
    return InputError{option, {}, "'" + address + "' (a port above 65535)", expected};
  }
  try {
    open();
  } catch (const zmq::error_t& error) {
    return InputError{option, {}, "'" + address + "' (" + error.what() + ")", expected};
  }
  return std::nullopt;
}

/// Whether something arrives before the time is over or a signal comes.
template <class Items>
bool wait(Items& items, std::chrono::milliseconds patience) {
  try {
    return zmq::poll(items, patience) > 0;
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return false;
  }
}

/// False where none is waiting.
inline bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame) {
  for (;;) {
    try {
      return socket.recv(frame, zmq::recv_flags::dontwait).has_value();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

/// The frames of one multipart; false where none is waiting.
inline bool receive_frames(zmq::socket_t& socket, std::vector<zmq::message_t>& frames) {
  frames.clear();
  bool has_more = true;
  while (has_more) {
    zmq::message_t frame;
    if (!receive_frame(socket, frame)) return false;
    has_more = frame.more();
    if (frames.size() < kFramesMax) frames.push_back(std::move(frame));
  }
  return true;
}

}  // namespace kvfence::audit

#endif
