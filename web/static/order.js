// In a narrow window the holder and the queue come before the timeline. The stylesheet shows them so from the first moment on; here the order
// of the document follows, which is that of the keyboard and of screen readers.
"use strict";
(() => {
  const past = document.querySelector(".past:not(.past-asked)");
  const narrow = matchMedia("(max-width: 46rem)"); // as in the stylesheet
  const put = () => document.querySelector("#queue")[narrow.matches ? "after" : "before"](past);
  if (!past) return;
  narrow.addEventListener("change", put);
  put();
})();
