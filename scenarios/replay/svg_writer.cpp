#include "scenarios/replay/svg_writer.h"

#include <cstdio>
#include <utility>

#include "properties/report/xml_text.h"

namespace kvfence {

std::string svg_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string xml_attribute(std::string_view name, double value) {
  return xml_attribute(name, std::string_view(svg_number(value)));
}

SvgWriter::SvgWriter(double width, double height, std::string_view title) {
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\"" + xml_attribute("width", width) +
         xml_attribute("height", height) +
         xml_attribute("viewBox", "0 0 " + svg_number(width) + " " + svg_number(height)) +
         " font-family=\"sans-serif\" font-size=\"12\">\n<title>" + escape_xml(title) +
         "</title>\n";
  rectangle({0, 0}, width, height, "#ffffff");
}

void SvgWriter::line(SvgPoint from, SvgPoint to, std::string_view color, bool is_dashed) {
  out_ += "<line" + xml_attribute("x1", from.x) + xml_attribute("y1", from.y) +
          xml_attribute("x2", to.x) + xml_attribute("y2", to.y) + xml_attribute("stroke", color) +
          (is_dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
}

void SvgWriter::put_points(const std::vector<SvgPoint>& points) {
  out_ += " points=\"";
  for (std::size_t index = 0; index < points.size(); ++index) {
    if (index > 0) out_ += ' ';
    out_ += svg_number(points[index].x) + "," + svg_number(points[index].y);
  }
  out_ += '"';
}

void SvgWriter::polyline(const std::vector<SvgPoint>& points, std::string_view color) {
  out_ += "<polyline fill=\"none\" stroke-width=\"2\"" + xml_attribute("stroke", color);
  put_points(points);
  out_ += "/>\n";
}

void SvgWriter::polygon(const std::vector<SvgPoint>& points, std::string_view fill) {
  out_ += "<polygon" + xml_attribute("fill", fill);
  put_points(points);
  out_ += "/>\n";
}

void SvgWriter::circle(SvgPoint center, double radius, std::string_view fill) {
  out_ += "<circle" + xml_attribute("cx", center.x) + xml_attribute("cy", center.y) +
          xml_attribute("r", radius) + xml_attribute("fill", fill) + "/>\n";
}

void SvgWriter::rectangle(SvgPoint corner, double width, double height, std::string_view fill) {
  out_ += "<rect" + xml_attribute("x", corner.x) + xml_attribute("y", corner.y) +
          xml_attribute("width", width) + xml_attribute("height", height) +
          xml_attribute("fill", fill) + "/>\n";
}

void SvgWriter::text(SvgPoint at, std::string_view text, Anchor anchor, double angle) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  out_ += "<text" + xml_attribute("x", at.x) + xml_attribute("y", at.y) +
          xml_attribute("text-anchor", kAnchors[static_cast<int>(anchor)]) +
          xml_attribute("fill", "#222");
  if (angle != 0) {
    out_ += xml_attribute("transform", "rotate(" + svg_number(angle) + " " + svg_number(at.x) +
                                           " " + svg_number(at.y) + ")");
  }
  out_ += ">" + escape_xml(text) + "</text>\n";
}

std::string SvgWriter::finish() { return std::exchange(out_, {}) + "</svg>\n"; }

}  // namespace kvfence
