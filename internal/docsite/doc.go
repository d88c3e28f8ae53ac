// Package docsite makes the documentation that a gateway serves at /docs: a page of each Markdown file, and a reference of the
// API from its specification.
//
// # Promises
//
// The pages are made of the files that were embedded when the gateway was built, all at once, when the first of them is asked
// for: some 50 ms and 3 MB. They never change after that. Nothing in them depends on the request.
//
// A page needs no script and asks no other host. A link between documents leads to the page; a link to a file that the gateway
// does not serve becomes text that names the file. A Markdown file is also served as it is, under the name that it has.
//
// The navigation is the index of the documents (README.md or index.md at their top): its headings, or the bold words that its
// paragraphs begin with, and under each the pages that it links to, in its order. Pages that it leaves out follow, by directory. Any tree of Markdown will do, and any
// OpenAPI 3 document.
//
// # Refusals
//
// The documents are the project's own and may hold HTML; what they hold of scripts, the content security policy keeps from
// running. All of the specification is escaped, and HTML in its descriptions is left out. Two documents with one address, and
// a specification that cannot be read, are errors, which the package's tests find.
//
// # Failure
//
// It has no goroutines and reads no clock. An error of the first request is the answer of all.
package docsite
