#pragma once

/// Text inside XML files: reports (JUnit) and pictures (SVG).

#include <string>
#include <string_view>

namespace kvfence {

/// Text that may stand between tags or quotes of an XML 1.0 file, whatever its bytes are: control
/// and non-ASCII bytes become `\xHH`.
std::string escape_xml(std::string_view text);

/// ` name="value"`, escaped. Readers turn a newline within the quotes into a blank.
std::string xml_attribute(std::string_view name, std::string_view value);

}  // namespace kvfence
