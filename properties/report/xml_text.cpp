#include "properties/report/xml_text.h"

#include "contract/core/hex.h"

namespace kvfence {

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += '\n';
        break;
      default:
        if (byte >= 0x20 && byte < 0x7F) {
          out += character;
        } else {
          out += "\\x";
          append_hex(out, character);
        }
    }
  }
  return out;
}

std::string xml_attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escape_xml(value) + "\"";
}

}  // namespace kvfence
